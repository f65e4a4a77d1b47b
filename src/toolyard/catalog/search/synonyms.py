"""Synonyms for matching the words of a request with the words of tool definitions.

A small table of general English and some Chinese, not derived from any catalogue. Each line is a group of
synonyms; a word may be in several groups. A request to ``remove`` a ``picture`` matches a tool described with
``delete`` and ``image``. An exact match always counts for more than a synonym.
"""

from __future__ import annotations

from functools import cache

from toolyard.catalog.search.stemmer import stem

__all__ = ["SynonymGroup", "find_synonym_groups"]

_SYNONYM_LINES = """
get fetch retrieve read obtain load access
show view display list see print
list enumerate browse all
create add new make generate build
create compose draft write
insert append add put
delete remove erase drop clear discard
update edit modify change alter adjust revise
rename move relocate
copy duplicate clone
search find lookup query locate discover explore
send post publish submit share deliver
upload import ingest
download export save
save store persist keep record
convert transform turn change format
translate translation language languages
calculate compute determine evaluate math
estimate predict forecast projection
start run execute launch begin invoke trigger
stop cancel end terminate kill abort halt
open launch start
close shut finish
enable activate allow
disable deactivate block
check verify validate test confirm
compare contrast difference diff versus
analyze examine inspect review assess investigate
summarize summary condense brief overview shorten
explain describe clarify
recommend suggest propose advise advice recommendation
book reserve reservation booking
buy purchase order shop shopping
sell trade
pay payment charge bill billing
transfer move send
schedule plan arrange calendar
remind reminder alert notify notification
watch monitor track follow observe
join merge combine concatenate
split divide separate
extract parse scrape pull
draw plot render paint sketch visualize
chart graph plot diagram visualization
resize scale shrink crop
compress zip archive
sort order rank
filter select narrow
assign allocate delegate
approve accept
reject decline refuse
invite ask
learn study teach education course lesson tutorial
play game gaming player
listen hear audio sound
cook recipe meal dish food cuisine
eat dining restaurant food meal dinner lunch
travel trip vacation holiday tour tourism journey itinerary
flight airline plane airport fly
hotel accommodation lodging stay room hostel
train railway rail
bus transit transport
car vehicle automobile auto
park parking garage
drive driving route directions navigation
map location place geography
near nearby close around vicinity
address location coordinates geocode
distance far length
city town
country nation
weather forecast temperature climate rain snow wind sunny
temperature hot cold degrees
hot trending popular
latest recent newest current today now
news headline headlines article press
article post blog story
paper papers research publication academic scholarly study
book books novel literature
author writer
movie film cinema
show series television tv episode
video clip youtube footage
music song track album artist playlist
image picture photo photograph pic
icon logo symbol emoji
color colour palette
design style theme layout
webpage website site page web url link
internet web online
browser web page
search web google internet
file document
folder directory path
document doc docx word
spreadsheet excel xlsx xls worksheet workbook table csv
slide slides presentation powerpoint ppt pptx deck
pdf document
text content string
note notes memo
email mail inbox gmail
message chat sms text
contact person people profile
user account member person people
team group
customer client
employee staff worker
company business firm organization corporation
job career employment hiring vacancy position
resume cv
salary wage pay income
price cost rate quote value
cheap discount deal coupon bargain sale promo
product item goods
order purchase
store shop
delivery shipping shipment parcel package tracking courier
currency exchange forex money conversion
crypto cryptocurrency bitcoin coin token blockchain
stock share equity ticker market
invest investment investor portfolio finance
finance financial money
bank account banking
loan mortgage credit interest
tax taxes
budget expense spending
profit revenue earnings income
house home property apartment estate housing
rent rental lease
health medical medicine disease symptom doctor
doctor physician clinic hospital
drug medication medicine
fitness exercise workout gym
nutrition calorie calories diet nutritional
sport sports match game team league
football soccer
score result results
animal pet dog cat
joke funny humor fun
quote quotes saying
name names called
date day calendar
time clock hour timezone
event events happening
meeting appointment
task todo reminder
project board
issue ticket bug problem
error exception failure crash
log logs history
version release
code programming source script
repository repo git github
commit change
branch fork
package library dependency module
function method
database db sql table
record row entry
query sql
server host machine
container docker
deploy deployment publish
cloud aws
network ip dns domain
security vulnerability threat
password credential secret
login signin authentication sign
permission access role
key token
config configuration setting settings options preference
status state health
metric metrics statistics stats analytics
count number total amount quantity
size length
average mean
sum total add
maximum highest largest top best
minimum lowest smallest
random
list collection set
tag label category
type kind category
comment comments reply feedback review
review rating ratings
like favorite bookmark
summary abstract
keyword term
definition dictionary meaning define
synonym thesaurus
grammar spelling proofread
speech voice speak audio
transcript transcribe transcription subtitle subtitles caption captions
screenshot capture screen
scan ocr recognize
camera photo
phone telephone mobile
device hardware
terminal shell command console
process program application app
space astronomy planet nasa
plant garden
environment pollution air
air quality pollution
energy power electricity
law legal court
government political politics election
school university college
student pupil
gift present
party celebration event
wedding marriage
baby child kid
horoscope zodiac astrology
teammate colleague coworker member
ban kick block
concert gig event ticket
grocery groceries shopping food
taxi cab ride transport
commute traffic route congestion
hike trail outdoor
earthquake quake disaster
sunrise sunset sun
birthday anniversary date
alarm timer clock
diary journal note
flowchart mindmap diagram
heatmap map chart
rewrite rephrase paraphrase
tweet twitter post
hashtag tag
subscriber follower
stream live broadcast
podcast episode audio
lyrics song
dividend stock
invoice bill receipt payment
refund return
inventory stock warehouse
supplier vendor provider
lead customer crm
support ticket issue
outage incident alert
uptime status monitor
cpu memory usage performance
slow latency performance
backup snapshot restore
restore recover undo revert rollback
encrypt decrypt cipher
hash checksum
encode decode base64
regex pattern match
schema structure
column field attribute
heading title header
sentiment emotion mood opinion
topic subject category
fact knowledge encyclopedia wikipedia wiki
question answer ask
quiz test exam
solve equation math
molecule compound chemistry chemical
gene protein dna genetic
species animal
patient clinical medical
contract agreement
convert unit measurement metric
dollar euro currency
gold silver metal commodity
fuel gas petrol oil
carbon emission footprint
clothes clothing outfit fashion wear
beauty cosmetics makeup
furniture interior decor
repair fix maintenance
insurance policy coverage
charity donation donate
religion bible verse
poem poetry story writing
caption title subtitle
avatar portrait face image
logo brand design
domain hostname dns website
visit tour attraction sightseeing
museum gallery exhibition art
beach sea ocean
mountain altitude elevation
tarot fortune
搜索 查找 search find
查询 query lookup search
获取 get fetch
列表 列出 list
创建 新建 create
添加 增加 add
删除 移除 delete remove
更新 修改 编辑 update edit
发送 send
下载 download
上传 upload
读取 阅读 read
写入 write
保存 save
打开 open
运行 执行 run execute
计算 calculate
转换 convert
翻译 translate
分析 analyze
总结 摘要 summarize summary
推荐 recommend
生成 generate
比较 对比 compare
提取 extract
预订 预定 book
天气 气象 weather
预报 forecast
气温 温度 temperature
新闻 资讯 news
热搜 热门 热榜 trending hot
文件 file
目录 folder directory
文档 document
表格 spreadsheet excel table
图片 图像 照片 image
图表 chart
视频 video
音乐 歌曲 music
电影 movie
网页 网站 webpage website
链接 link url
邮件 邮箱 email
消息 message
日历 calendar
日程 schedule
时间 time
日期 date
地图 map
地址 address
位置 location
路线 路径 route
附近 周边 nearby
城市 city
火车 车票 train
航班 机票 flight
酒店 hotel
餐厅 美食 restaurant
菜谱 食谱 recipe
股票 stock
价格 price
汇率 货币 currency exchange
基金 fund
数据 data
信息 information
用户 user
代码 code
仓库 repository
论文 paper
书籍 图书 book
游戏 game
商品 产品 product
订单 order
任务 task
笔记 note
"""

SynonymGroup = tuple[str, ...]
"""Stems of the words of one line, in the order of the line."""


def find_synonym_groups(term: str) -> tuple[SynonymGroup, ...]:
    """Return the synonym groups that contain the stem ``term``; empty if there are none."""
    return _groups_by_stem().get(term, ())


@cache
def _groups_by_stem() -> dict[str, tuple[SynonymGroup, ...]]:
    # Computed at first use: no work at import time.
    groups: dict[str, tuple[SynonymGroup, ...]] = {}
    for line in _SYNONYM_LINES.strip().splitlines():
        group = tuple(dict.fromkeys(stem(word) for word in line.split()))
        for term in group:
            groups[term] = (*groups.get(term, ()), group)
    return groups
